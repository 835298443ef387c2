"""What ``weir explain`` draws."""
