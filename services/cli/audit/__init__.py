"""`dapo audit`: what a run's processes wrote down, checked by code that shares nothing with them."""
