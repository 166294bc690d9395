--- accelhost.linalg on "far": what it makes on the way lies where its inputs do.
local op_fixture = require "spec.support.op_fixture"

describe("accelhost.linalg:", function()
  op_fixture.define_on(require "spec.fixtures.linalg", it, "far")
end)
