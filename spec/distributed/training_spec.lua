-- A job trains as one process does; what its loaders give and what metrics count.
local checks = require "spec.support.checks"

checks.describe("A job", "spec/distributed/cases/training.lua", {1, 2, 3, 4},
  {allow = "depends on no prepared model"}) -- the reference's backward
