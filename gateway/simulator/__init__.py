"""A small simulated engine: vLLM's dialect, a continuous-batching time model, no model.

It serves the demo where no real engine can be installed, and examples and tests that need no model. What it says is
made up from the words of the prompt; when it says it follows ``batching``.
"""
