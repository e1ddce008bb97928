"""Runs rdma-core's tests of pyverbs, and prints a line for each: its name, what became of it, why.

Arguments: the folder that has `tests`, and `left-out` with the names of tests that are not run; then
those of the suite.
"""

import sys
import unittest

folder = sys.argv.pop(1)
sys.path[:0] = [folder, folder + "/tests"]

with open(folder + "/left-out") as names:
    left_out = set(names.read().split())

import args_parser

args_parser.parser.parse_args()
import tests


class Lines(unittest.TestResult):
    """Prints each result at once, so that a crash shows where it came."""

    def startTest(self, test):
        super().startTest(test)
        self.outcome = ("ok", "")

    def stopTest(self, test):
        outcome, why = self.outcome
        print("RESULT", test.id(), outcome, why.replace("\n", " | "), flush=True)
        super().stopTest(test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = ("skip", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcome = ("fail", self._exc_info_to_string(err, test).strip())

    addError = addFailure

    def addExpectedFailure(self, test, err):
        self.outcome = ("skip", "expected failure")

    def addUnexpectedSuccess(self, test):
        self.outcome = ("fail", "unexpected success")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.outcome = ("fail", self._exc_info_to_string(err, test).strip())


def chosen(suite):
    """Yields the tests of a suite that are not left out."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from chosen(test)
        elif test.id() not in left_out:
            yield test


result = Lines()
unittest.TestSuite(chosen(unittest.defaultTestLoader.loadTestsFromModule(tests))).run(result)
print("END", result.testsRun)
