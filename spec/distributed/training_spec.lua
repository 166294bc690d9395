-- A job trains as one process does; the batches of its loaders and the counts of metrics.
local checks = require "spec.support.checks"

checks.describe("A job", "spec/distributed/cases/training.lua", {1, 2, 3, 4},
  {allow = "depends on no prepared model"}) -- the reference's backward
