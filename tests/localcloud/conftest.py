from tests.builders.local import real_clock, site

__all__ = ["real_clock", "site"]
