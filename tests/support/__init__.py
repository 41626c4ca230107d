"""What tests share. Its assertions explain themselves like those of the tests."""

import pytest

pytest.register_assert_rewrite("tests.support.comparing", "tests.support.wire")
