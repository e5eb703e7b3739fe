"""The rounds of speculative decoding, by hand."""

from fractions import Fraction

import pytest

from crossflops.cli import main
from crossflops.errors import InputError
from crossflops.verbs.speculation import mean_accepted_tokens, plan_rounds


def test_all_accepted_tokens_are_k_and_one_more():
    """4 of 4 give 5 tokens in a round; the last of 11 tokens comes without a proposal."""
    rounds = plan_rounds(100, 11, 4, Fraction(4))
    assert [tuple(one) for one in rounds] == [(100, 4, 4), (105, 4, 4), (110, 0, 0)]


def test_no_accepted_token_is_a_round_for_each():
    """One token less is left in each round, and at most so many are proposed."""
    rounds = plan_rounds(7, 4, 3, Fraction(0))
    assert [tuple(one) for one in rounds] == [(7, 3, 0), (8, 2, 0), (9, 1, 0), (10, 0, 0)]


def test_a_mean_is_spread_evenly():
    """5/2 is 2, 3, 2, 3 ...: 7 tokens in two rounds with those of the model."""
    rounds = plan_rounds(10, 28, 4, Fraction(5, 2))
    assert [one.accepted for one in rounds] == [2, 3, 2, 3, 2, 3, 2, 3]
    assert sum(one.accepted + 1 for one in rounds) == 28


@pytest.mark.parametrize("generate", range(1, 40))
@pytest.mark.parametrize("mean", [Fraction(0), Fraction(7, 3), Fraction(5)])
def test_every_plan_gives_the_new_tokens(generate, mean):
    """Each round begins where the one before ended, and none proposes more than is left."""
    rounds = plan_rounds(3, generate, 5, mean)
    before = 3
    for one in rounds:
        assert one.before == before
        assert one.accepted <= one.proposed <= min(5, 3 + generate - before - 1)
        before += one.accepted + 1
    assert before == 3 + generate


def test_a_share_is_the_chance_of_each_token():
    """The expectation over all outcomes of three tokens that are accepted with 80 % each."""
    chance = Fraction(4, 5)
    by_hand = sum(
        accepted * (chance**accepted * (1 - chance) if accepted < 3 else chance**3)
        for accepted in range(4)
    )
    assert mean_accepted_tokens("80%", 3) == by_hand
    assert mean_accepted_tokens("100%", 3) == 3
    assert mean_accepted_tokens("2.5", 4) == Fraction(5, 2)


@pytest.mark.parametrize("text", ["x", "", "-1", "5", "101%", "1/0", "nan", "inf", "%"])
def test_a_wrong_number_is_refused(text):
    """Of four proposed tokens no five are accepted."""
    with pytest.raises(InputError, match="--acceptance must be"):
        mean_accepted_tokens(text, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--prompt 8 --generate 2 --draft hf:d.json", "--draft requires --draft-tokens"),
        ("--prompt 8 --generate 2 --draft hf:d.json --draft-tokens 2", "requires --acceptance"),
        ("--prompt 8 --generate 2 --acceptance 2", "--acceptance requires --draft"),
        ("--prompt 8 --generate 2 --draft hf:d.json --draft-tokens 2 --acceptance 3", "from 0 to"),
        ("--prompt 8 --generate 2 --cache-dtype fp7", "'fp7' is unknown"),
        ("--cache-dtype fp8", "--cache-dtype requires --prompt and --generate"),
        ("--draft hf:d.json", "--draft requires --prompt and --generate"),
    ],
)
def test_options_that_lack_others_are_refused(options, message, tmp_path, capsys):
    """Before a model is built: the config is not even there."""
    assert main(["count", f"hf:{tmp_path}/none.json", *options.split()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[0]
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2
