"""The paper behind each mechanism, as BibTeX, for model cards.

`CITATION.cff` lists those of the linear mechanisms.
"""

from collections.abc import Iterable

_COSFORMER = """\
@inproceedings{qin2022cosformer,
  title = {cosFormer: Rethinking Softmax in Attention},
  author = {Qin, Zhen and Sun, Weixuan and Deng, Hui and Li, Dongxu and Wei, Yunshen and
            Lv, Baohong and Yan, Junjie and Kong, Lingpeng and Zhong, Yiran},
  booktitle = {International Conference on Learning Representations},
  year = {2022},
  eprint = {2202.08791},
  archivePrefix = {arXiv}
}"""
_TRANSNORMER = """\
@inproceedings{qin2022devil,
  title = {The Devil in Linear Transformer},
  author = {Qin, Zhen and Han, Xiaodong and Sun, Weixuan and Li, Dongxu and Kong, Lingpeng and
            Barnes, Nick and Zhong, Yiran},
  booktitle = {Conference on Empirical Methods in Natural Language Processing},
  year = {2022},
  eprint = {2210.10340},
  archivePrefix = {arXiv}
}"""
_LINEAR_TRANSFORMER = """\
@inproceedings{katharopoulos2020transformers,
  title = {Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention},
  author = {Katharopoulos, Angelos and Vyas, Apoorv and Pappas, Nikolaos and
            Fleuret, François},
  booktitle = {International Conference on Machine Learning},
  year = {2020},
  eprint = {2006.16236},
  archivePrefix = {arXiv}
}"""
_NYSTROM = """\
@inproceedings{xiong2021nystromformer,
  title = {Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention},
  author = {Xiong, Yunyang and Zeng, Zhanpeng and Chakraborty, Rudrasis and Tan, Mingxing and
            Fung, Glenn and Li, Yin and Singh, Vikas},
  booktitle = {AAAI Conference on Artificial Intelligence},
  year = {2021},
  eprint = {2102.03902},
  archivePrefix = {arXiv}
}"""
_SOFTMAX = """\
@inproceedings{vaswani2017attention,
  title = {Attention Is All You Need},
  author = {Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and
            Jones, Llion and Gomez, Aidan N. and Kaiser, Łukasz and Polosukhin, Illia},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2017},
  eprint = {1706.03762},
  archivePrefix = {arXiv}
}"""

# By registry name, as in a config's `layer_attention`.
CITATIONS = {
    "softmax": _SOFTMAX,
    "linear_transformer": _LINEAR_TRANSFORMER,
    "cosformer": _COSFORMER,
    "transnormer_norm": _TRANSNORMER,
    "transnormer_diag": _TRANSNORMER,
    "nystrom": _NYSTROM,
}


def citations_of(mechanisms: Iterable[str]) -> list[str]:
    """BibTeX of the papers behind mechanisms, each paper once, in the order given.

    Args:
        mechanisms: registry names, repeated or not; one registered by a user has no entry here.
    """
    return list(dict.fromkeys(CITATIONS[name] for name in mechanisms if name in CITATIONS))
