"""Engines compute a rule on many parameters: one at a time, in joined chunks, or in C."""
