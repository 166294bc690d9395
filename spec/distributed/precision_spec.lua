-- A job trains in mixed precision as one process does.
local checks = require "spec.support.checks"

checks.describe("A job", "spec/distributed/cases/precision.lua", {1, 2})
