"""Transformers' pipelines, with a tiny tokenizer and no network."""

import logging

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, pipeline
from transformers.pipelines import PIPELINE_REGISTRY

import hf_linear_attn as hla
from hf_linear_attn.integrations.question_answering import answer_question
from tests.conftest import TINY, VARIANTS
from tests.models.foreign_models import language_model
from tests.models.task_models import IS_DECODER, build

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = ["the cat sat on the mat", "a dog ran", "home", "the dog ran far away from home ."]
HYPOTHESIS = "this example is about {} ."
LABELS = ["pets", "trips"]
WORDS = sorted({*" ".join([*TEXTS, HYPOTHESIS, *LABELS]).split()} - {"{}"})


@pytest.fixture(scope="module")
def tokenizer():
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=TINY["max_position_embeddings"],
        bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        mask_token="<mask>", cls_token="<s>", sep_token="</s>",
    )  # fmt: skip


def run(task, model, tokenizer, caplog, texts=TEXTS, **keywords):
    """One by one and in padded batches: alike, and nothing is complained about."""
    with caplog.at_level(logging.ERROR):
        pipe = pipeline(task, model=model, tokenizer=tokenizer, device="cpu")
        alone = [pipe(text, **keywords) for text in texts]
        batched = pipe(texts, batch_size=2, **keywords)
        tokenizer.padding_side = "left"
        try:
            left = pipe(texts, batch_size=2, **keywords)
        finally:
            tokenizer.padding_side = "right"
    assert "not supported" not in caplog.text
    return alone, batched, left


def assert_alike(found, wanted):
    """Nested lists and dictionaries, numbers to 1e-5."""
    assert type(found) is type(wanted)
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert_alike(a, b)
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            assert_alike(found[key], wanted[key])
    elif isinstance(wanted, str):
        assert found == wanted
    else:
        assert float(found) == pytest.approx(float(wanted), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("is_decoder", IS_DECODER)
@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_text_classification(variant, tokenizer, caplog, pooling, is_decoder):
    names = {0: "no", 1: "maybe", 2: "yes"}
    model = build(
        variant, "SequenceClassification", is_decoder=is_decoder, pooling=pooling, id2label=names
    )
    alone, batched, left = run("text-classification", model, tokenizer, caplog, top_k=None)
    assert_alike(batched, alone)
    assert_alike(left, alone)
    for text, result in zip(TEXTS, alone, strict=True):
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
        wanted = dict(zip(names.values(), logits.softmax(-1).tolist(), strict=True))
        found = {entry["label"]: entry["score"] for entry in result}
        assert found == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("is_decoder", IS_DECODER)
def test_token_classification(variant, tokenizer, caplog, is_decoder):
    names = {0: "O", 1: "ANIMAL", 2: "PLACE"}
    model = build(variant, "TokenClassification", is_decoder=is_decoder, id2label=names)
    alone, batched, left = run("token-classification", model, tokenizer, caplog, ignore_labels=[])
    assert_alike(batched, alone)
    # Numbered from the row's first token, the pads of the left included: Transformers' way.
    for rows in (left, alone):
        for row in rows:
            for entry in row:
                del entry["index"]
    assert_alike(left, alone)
    for text, result in zip(TEXTS, alone, strict=True):
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0, 1:-1]
        wanted = [names[int(i)] for i in logits.argmax(-1)]
        assert [entry["entity"] for entry in result] == wanted
        assert [text[e["start"] : e["end"]] for e in result] == text.split()


@pytest.mark.parametrize("is_decoder", IS_DECODER)
def test_zero_shot_classification(variant, tokenizer, caplog, is_decoder):
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    fields = {"id2label": names, "label2id": {v: k for k, v in names.items()}}
    model = build(variant, "SequenceClassification", is_decoder=is_decoder, **fields)
    keywords = {"candidate_labels": LABELS, "hypothesis_template": HYPOTHESIS}
    alone, batched, left = run("zero-shot-classification", model, tokenizer, caplog, **keywords)
    assert_alike(batched, alone)
    assert_alike(left, alone)
    pairs = [(TEXTS[0], HYPOTHESIS.format(label)) for label in LABELS]
    logits = [model(**tokenizer(*pair, return_tensors="pt")).logits[0, 2] for pair in pairs]
    wanted = dict(zip(LABELS, torch.stack(logits).softmax(0).tolist(), strict=True))
    found = dict(zip(alone[0]["labels"], alone[0]["scores"], strict=True))
    assert found == pytest.approx(wanted, rel=1e-4)


def test_fill_mask(variant, tokenizer, caplog):
    config_class, _, model_class = VARIANTS[variant]
    model = model_class(config_class(**{**TINY, "vocab_size": len(tokenizer)})).eval()
    texts = ["the <mask> sat on the mat", "a dog <mask>", "the cat ran far away from <mask> ."]
    alone, batched, left = run("fill-mask", model, tokenizer, caplog, texts=texts)
    assert_alike(batched, alone)
    assert_alike(left, alone)
    logits = model(**tokenizer(texts[1], return_tensors="pt")).logits[0, 3]
    best = logits.softmax(-1).topk(5)
    assert [entry["token"] for entry in alone[1]] == best.indices.tolist()
    assert [entry["score"] for entry in alone[1]] == pytest.approx(best.values.tolist(), rel=1e-4)


def test_feature_extraction(variant, tokenizer, caplog):
    config_class, base_class, _ = VARIANTS[variant]
    model = base_class(config_class(**TINY)).eval()
    alone, batched, _ = run("feature-extraction", model, tokenizer, caplog)
    for one, padded in zip(alone, batched, strict=True):
        assert_alike(padded[0][: len(one[0])], one[0])


ADAPTED = {
    "text-classification": ("SequenceClassification", "SEQ_CLS"),
    "token-classification": ("TokenClassification", "TOKEN_CLS"),
    "fill-mask": ("MaskedLM", None),
    "feature-extraction": ("Model", "FEATURE_EXTRACTION"),
    "text-generation": ("CausalLM", "CAUSAL_LM"),
}


@pytest.mark.parametrize(
    "task",
    [
        "text-classification",
        "text-generation",
        *(pytest.param(task, marks=pytest.mark.slow) for task in list(ADAPTED)[1:-1]),
    ],
)
def test_pipelines_run_adapters(task, tokenizer, caplog):
    """As they run the model with the adapter merged into it."""
    head, peft_task = ADAPTED[task]
    name = "Cosformer" + (head if head == "Model" else "For" + head)
    fields = {**TINY, "vocab_size": len(tokenizer)}
    model = getattr(hla, name)(hla.CosformerConfig(**fields)).eval()
    model = get_peft_model(model, LoraConfig(task_type=peft_task, init_lora_weights=False))
    text = "a dog <mask>" if task == "fill-mask" else TEXTS[0]
    options = {"max_new_tokens": 4, "do_sample": False} if task == "text-generation" else {}
    with caplog.at_level(logging.ERROR):
        found = pipeline(task, model=model, tokenizer=tokenizer, device="cpu")(text, **options)
    assert "not supported" not in caplog.text
    with model.disable_adapter():
        without = pipeline(task, model=model, tokenizer=tokenizer, device="cpu")(text, **options)
    merged = model.merge_and_unload()
    assert_alike(found, pipeline(task, merged, tokenizer=tokenizer, device="cpu")(text, **options))
    assert found != without


CONVERTED = {"fill-mask": "roberta", "text-generation": "llama", "feature-extraction": "bert"}


@pytest.mark.parametrize("task", list(CONVERTED))
def test_pipelines_run_converted_models(task, tokenizer, tmp_path):
    """With softmax they say what the source says, from a folder, too."""
    kind = CONVERTED[task]
    source = language_model(kind, vocab_size=len(tokenizer))
    if task == "feature-extraction":
        source = source.base_model
    converted = hla.convert(source, "cosformer", layer_attention="softmax")
    converted.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    options = {"max_new_tokens": 4, "do_sample": False} if task == "text-generation" else {}
    text = "a dog <mask>" if task == "fill-mask" else TEXTS[0]
    wanted = pipeline(task, model=source, tokenizer=tokenizer, device="cpu")(text, **options)
    assert_alike(pipeline(task, model=str(tmp_path), device="cpu")(text, **options), wanted)


def test_there_is_no_pipeline_for_answers():
    """Transformers took it out; should it come back, `answer_question` is its equal."""
    assert "question-answering" not in PIPELINE_REGISTRY.get_supported_tasks()


@pytest.mark.parametrize(
    "longest", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 30))]
)
@pytest.mark.parametrize("is_decoder", IS_DECODER)
def test_answers(variant, tokenizer, longest, is_decoder):
    """All spans of the text are tried, dropout is off, and every mode is as it was."""
    fields = {"hidden_dropout_prob": 0.5, "vocab_size": len(tokenizer)}
    model = build(variant, "QuestionAnswering", is_decoder=is_decoder, **fields)
    question, context = "a dog .", "the cat  sat on the mat"
    output = model(**tokenizer(question, context, return_tensors="pt"))
    # <s> a dog . </s> the cat sat on the mat </s>
    start, end = (output[name][0, 5:11] for name in ("start_logits", "end_logits"))
    spans = {(i, j): start[i] + end[j] for i in range(6) for j in range(i, min(6, i + longest))}
    (i, j), logit = max(spans.items(), key=lambda item: item[1])
    model.train()
    found = answer_question(model, tokenizer, question, context, max_answer_tokens=longest)
    assert found.answer.split() == context.split()[i : j + 1]
    assert context[found.start : found.end] == found.answer
    share = (logit.exp() / torch.stack(list(spans.values())).exp().sum()).item()
    assert found.score == pytest.approx(share, rel=1e-4)
    assert all(module.training for module in model.modules())


def test_answers_of_an_adapter(tokenizer):
    model = build("cosformer", "QuestionAnswering", vocab_size=len(tokenizer))
    config = LoraConfig(task_type="QUESTION_ANS", init_lora_weights=False)
    model = get_peft_model(model, config)
    found = answer_question(model, tokenizer, "a dog .", TEXTS[0])
    merged = answer_question(model.merge_and_unload(), tokenizer, "a dog .", TEXTS[0])
    assert found[::2] == merged[::2]
    assert found.score == pytest.approx(merged.score, rel=1e-4)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"context": " "}, "a text in which there is no token"),
        ({"context": "the cat " * 40}, "max_position_embeddings"),
        ({"max_answer_tokens": 0}, "max_answer_tokens: got 0"),
    ],
)
def test_what_cannot_be_answered_is_refused(tokenizer, keywords, words):
    model = build("cosformer", "QuestionAnswering", vocab_size=len(tokenizer))
    with pytest.raises(ValueError, match=words):
        answer_question(model, tokenizer, **{"question": "a dog", "context": TEXTS[0], **keywords})
