"""Where a request's time went, and one sentence that says why. Pure, on closed records."""
