"""What is asked of engines beside requests: whether they live, what they are, how busy they are."""
