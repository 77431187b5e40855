"""The report that opens in a browser: one HTML file that asks nothing of a network."""
