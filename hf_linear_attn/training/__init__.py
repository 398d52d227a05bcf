"""What the recipes share: arguments, data, tokenizer, collators, trainer, reports."""
