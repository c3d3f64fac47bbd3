from pathlib import Path

from common.messages import ChatMessage
from services.rollout.template import Template
from tests.unit.filter.models import save_words

CHAT = [ChatMessage(role="user", content="one two")]


def test_the_template_of_the_run_replaces_the_model_s(tmp_path: Path) -> None:
    # the model's puts <s> before and <a> after the two words
    folder = str(save_words(tmp_path / "model"))
    assert len(Template.of_model(folder).prompt_ids(CHAT)) == 4
    assert len(Template.of_model(folder, template="{{ messages[0].content }}").prompt_ids(CHAT)) == 2
