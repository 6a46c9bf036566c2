"""Stress: commands that kill, fill disks and count, with short forms that the test suite runs."""
