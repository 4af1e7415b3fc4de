"""Before the tables are read."""

import pytest

pytest.register_assert_rewrite("exchanges.table")
