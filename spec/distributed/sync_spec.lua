-- When gradients are averaged, and their values then.
local checks = require "spec.support.checks"

checks.describe("An accelerator", "spec/distributed/cases/sync.lua", {1, 2, 3, 4},
  {allow = "depends on no prepared model"}) -- the reference's backward
