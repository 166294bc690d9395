-- Gradient checkpointing together with averaging.
local checks = require "spec.support.checks"

checks.describe("A job", "spec/distributed/cases/recompute.lua", {1, 2, 3})
