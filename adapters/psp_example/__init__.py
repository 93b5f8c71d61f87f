"""An example of a PSP adapter in a separate distribution, for an invented PSP named Acme."""
