"""The samples of a training thread."""

import pytest

from tests.session.stacks import profiles
from tests.session.stacks.profiles import MAIN
from tuimon.views.tui.profile.profile_pane import Scope


@pytest.fixture
def trainer():
    session = profiles.session(2)
    return Scope(MAIN, MAIN, "main").samples(session)
