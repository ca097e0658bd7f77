"""The reliability campaign: each promise is tried thousands of times; the counts are in results/."""
