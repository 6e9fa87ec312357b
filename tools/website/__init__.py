"""The documentation as a site: `make site`. Every file of the tree that it shows, and what is made from the code."""
