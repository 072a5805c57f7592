// Values that have a name outside the core.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gpuyard {

template <class Enum>
struct Named {
    std::string_view name;
    Enum value;
};

// std::invalid_argument, which says that there is no such `kind`, for a name that is not in the table.
template <class Enum, std::size_t N>
Enum from_name(const std::array<Named<Enum>, N>& table, std::string_view name, const char* kind) {
    const auto found =
        std::find_if(table.begin(), table.end(), [&](const Named<Enum>& entry) { return entry.name == name; });
    if (found == table.end())
        throw std::invalid_argument("unknown " + std::string(kind) + " '" + std::string(name) + "'");
    return found->value;
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
    std::vector<std::string> names;
    for (const auto& entry : table) names.emplace_back(entry.name);
    return names;
}

}  // namespace gpuyard
