"""The inside of the sandbox: what runs in the processes of programs under test. Light, and knows no expected output."""
