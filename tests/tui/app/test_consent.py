"""One way from the policy's decision to what a person agreed to."""

from sandbox_console.errors import NotFound
from sandbox_console.service import Allow, Ask, Consent, Deny
from sandbox_console.tui.actions.consent import consent_to

ASKED = Ask("it is somebody else's", "policy.confirm")


class Policy:
    def __init__(self, decision):
        self.decision = decision

    async def decide(self, action, target=None):
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision


async def consent(decision, *, agrees=True):
    asked = []

    async def answer(question):
        asked.append(question)
        return agrees

    return await consent_to(Policy(decision), None, None, answer), asked


async def test_the_token_of_the_question_goes_along_with_the_yes():
    question = Ask("it is somebody else's", "policy.confirm", "abc123")
    assert await consent(question) == (Consent(yes=True, confirm="abc123"), [question])


async def test_who_says_no_agrees_to_nothing():
    assert await consent(ASKED, agrees=False) == (None, [ASKED])
    assert await consent(NotFound("gone"), agrees=False) == (None, [None])


async def test_without_a_question_of_the_policys_it_is_a_plain_yes():
    for decision in (Allow(), NotFound("gone")):
        assert await consent(decision) == (Consent(yes=True), [None])


async def test_nobody_is_asked_about_what_is_forbidden_and_it_counts_as_no_consent():
    assert await consent(Deny("no", "policy.read_only")) == (Consent(), [])
