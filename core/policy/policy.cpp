#include "policy/policy.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpuyard {

namespace {

template <class Enum, std::size_t N>
Enum from_name(const std::array<Named<Enum>, N>& names, std::string_view name, const char* kind) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const Named<Enum>& n) { return n.name == name; });
    if (found == names.end()) throw std::invalid_argument("unknown " + std::string(kind) + " '" + std::string(name) + "'");
    return found->value;
}

}  // namespace

Order order_from_name(std::string_view name) { return from_name(kOrders, name, "order"); }
Backfill backfill_from_name(std::string_view name) { return from_name(kBackfills, name, "backfill"); }
Placement placement_from_name(std::string_view name) { return from_name(kPlacements, name, "placement"); }

}  // namespace gpuyard
