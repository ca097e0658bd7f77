"""Measurements: scripts here, their numbers with the environment in results/."""
