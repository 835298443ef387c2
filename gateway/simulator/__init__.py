"""A small simulated engine: seven engines' dialects, one continuous-batching time model, no model.

It serves the demo where no real engine can be installed, and examples and tests that need no model. What it says is
made up from the words of the prompt; when it says it follows ``batching``; how it looks on the wire is a dialect's.
"""
