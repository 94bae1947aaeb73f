"""Which parts of a command line are secrets, and which only look like it."""

import shlex
import time

import pytest

from tuimon.masking import masked

TOKEN = "hf_" + "aB3" * 10


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train.py --api-key X", "train.py --api-key ***"),
        ("train.py --api_key=X --lr 3", "train.py --api_key=*** --lr 3"),
        ("train.py --password 'a b' -v", "train.py --password *** -v"),
        ("train.py '--password=a b'", "train.py --password=***"),
        ("train.py --token=X", "train.py --token=***"),
        ("train.py --hf-token X --wandb_api_key Y", "train.py --hf-token *** --wandb_api_key ***"),
        ("train.py --secret X --client-secret=Y", "train.py --secret *** --client-secret=***"),
        ("train.py --API-KEY X --SECRET=Y --SEED 3", "train.py --API-KEY *** --SECRET=*** --SEED 3"),
        ("train.py --apiKey X -accessKey=Y", "train.py --apiKey *** -accessKey=***"),
        ("train.py +logger.api_key=X data.path=y", "train.py +logger.api_key=*** data.path=y"),
        ("env WANDB_API_KEY=X HF_TOKEN=Y DB_PASSWORD=Z", "env WANDB_API_KEY=*** HF_TOKEN=*** DB_PASSWORD=***"),
        ("env AWS_SECRET_ACCESS_KEY=a/b= KEY=k APIKEY=k", "env AWS_SECRET_ACCESS_KEY=*** KEY=*** APIKEY=***"),
        ("train.py --db postgres://me:pass@host/db", "train.py --db postgres://me:***@host/db"),
        ("train.py --url=redis://:pass@host:1/0", "train.py --url=redis://:***@host:1/0"),
        ("pip install git+https://abc123@github.com/x/y", "pip install git+https://***@github.com/x/y"),
        ("get 'https://h/x?token=X&part=2'", "get 'https://h/x?token=***&part=2'"),
        ("get 's3://h/x?AWSAccessKeyId=k&Signature=X'", "get 's3://h/x?AWSAccessKeyId=k&Signature=***'"),
        ("curl -H 'Authorization: Bearer X.Y'", "curl -H 'Authorization: Bearer ***'"),
        (f"wandb login {TOKEN}", "wandb login ***"),
        ("aws AKIAIOSFODNN7EXAMPLE", "aws ***"),
        ("bash -c 'HF_TOKEN=X t.py --password \"a b\" -v'", "bash -c 'HF_TOKEN=*** t.py --password *** -v'"),
        ("sh -c 'export A_SECRET=X; t --api-key=Y; u'", "sh -c 'export A_SECRET=*** t --api-key=*** u'"),
    ],
)  # fmt: skip
def test_secrets_are_masked(command, shown):
    assert masked(shlex.split(command)) == shlex.split(shown)


@pytest.mark.parametrize(
    "command",
    [
        "train.py --tokenizer bert --keys 3 --num-tokens 5 --tokens=7 --max-token 5",
        "train.py --eos-token </s> --pad_token=<pad> --special-token x --bos-token-id 1",
        "train.py --token-file ~/.token --password-file p --secretary ann --key-frames 3 --sort-key name",
        "train.py --token --lr 3",  # a switch
        "train.py key=value monkey=1 tokenizer.path=x n_tokens=3",
        "env MONKEY=1 KEYS=a TOKENIZERS_PARALLELISM=false PASSWORDS=3 MAX_TOKEN=5 train",
        "git clone ssh://git@host/x git@host:x/y.git http://host:80/@user",
        "python -c 'tokens = 3; key=4; print(tokens, key)'",
        "train.py --name sk-learn-a-long-experiment-name --path hf_hub/cache",
        "train.py '' = == --= -- - --=x",
    ],
)
def test_what_only_looks_like_a_secret_stays(command):
    words = shlex.split(command)
    assert masked(words) == words


@pytest.mark.parametrize(
    "text", ["a=", "-", "x://", "http://a:", "--a ", "?token", "&a-", "a", 'a="', "--a=' ", "sk-", "authorization: a "]
)
def test_a_long_command_line_takes_no_time(text):
    began = time.process_time()
    masked(["bash", "-c", text * (100_000 // len(text)), f"{text * (100_000 // len(text))} b"])
    assert time.process_time() - began < 2.0  # about 0.05 s; seconds where time grows with the square of the length
