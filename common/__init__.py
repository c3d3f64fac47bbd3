"""What every service shares: messages, the queue client, process life. No torch, no vllm, no service."""
