"""What `--only cluster` measures: how quickly slots move, what stillness costs, what the cap costs."""
