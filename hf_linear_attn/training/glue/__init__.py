"""Finetuning on GLUE and other text classification: tasks, data, metrics, submissions, suites."""
