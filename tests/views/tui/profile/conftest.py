"""The samples of a training thread."""

import pytest

from tests.session.samples import profiles
from tests.session.samples.profiles import MAIN
from tuimon.session.samples.sample_profile import SampleProfile
from tuimon.views.tui.profile.scope import Scope


@pytest.fixture
def trainer():
    session = profiles.session(2)
    return SampleProfile(Scope(MAIN, MAIN, "main").samples(session))
