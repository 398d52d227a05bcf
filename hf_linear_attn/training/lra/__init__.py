"""Long Range Arena (Tay et al. 2020, https://arxiv.org/abs/2011.04006): its tasks, their data."""
