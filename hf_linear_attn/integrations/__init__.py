"""Where the package meets the rest of the Hugging Face world."""
