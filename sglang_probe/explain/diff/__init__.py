"""What two runs or more differ in, what it cost, and which difference explains the outcome."""
