"""Why a case fails: found by experiment, from the record of a run in which it failed."""
