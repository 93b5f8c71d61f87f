"""Code that PSP adapters share, in this distribution and in others."""
