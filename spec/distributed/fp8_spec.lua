-- The scales of FP8 in a job.
local checks = require "spec.support.checks"

checks.describe("A job in FP8", "spec/distributed/cases/fp8.lua", {1, 2})
