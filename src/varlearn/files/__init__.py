"""Files that survive an interruption and notice damage; train, predict, posterior and report write through them."""
