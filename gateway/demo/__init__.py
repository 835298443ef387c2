"""What ``weir demo`` starts and shows: two small engines, Weir in front of them, and one answer through it."""
