"""How long a test waits for what must come."""

from __future__ import annotations

WAIT_S = 30.0
"""Longest wait for anything; reaching it fails the test. A bound on hanging, not on speed; less than any deadline."""
