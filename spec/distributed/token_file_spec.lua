-- A token file read by several processes.
local checks = require "spec.support.checks"

checks.describe("A job's loader of a token file", "spec/distributed/cases/token_file.lua", {1, 2, 3})
