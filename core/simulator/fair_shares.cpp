#include "simulator/fair_shares.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/index.hpp"

namespace gpuyard {

namespace {

// An association, or a group with what its associations add up to.
struct Account {
    double usage = 0.0, share = 0.0;
};

class Tree {
public:
    Tree(const Multifactor& shares, std::span<const double> usage)
        : shares_(shares),
          usage_(usage),
          groups_(shares.group_share.size()) {
        for (std::size_t i = 0; i < usage.size(); ++i) {
            Account& group = groups_[group_of(i)];
            group.usage += usage[i];
            group.share += shares.association_share[i];  // of its associations
        }
        std::vector<std::uint8_t> used(groups_.size(), 0);
        for (std::size_t i = 0; i < usage.size(); ++i) used[group_of(i)] = 1;
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            if (!used[g]) continue;
            total_.usage += groups_[g].usage;
            total_.share += shares.group_share[g];
        }
    }

    std::vector<double> classic() const {
        std::vector<double> factors;
        for (std::size_t i = 0; i < usage_.size(); ++i) {
            const double own = total_.usage == 0.0 ? 0.0 : usage_[i] / total_.usage;
            const double groups = total_.usage == 0.0 ? 0.0 : groups_[group_of(i)].usage / total_.usage;
            const double effective = own + (groups - own) * share_in_group(i);
            factors.push_back(std::exp2(-(effective / (share_in_group(i) * share_of_group(group_of(i))))));
        }
        return factors;
    }

    std::vector<double> ranked() const {
        const std::size_t count = usage_.size();
        std::vector<double> above(count), own(count);
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t g = group_of(i);
            above[i] = level(share_of_group(g), groups_[g].usage, total_.usage);
            own[i] = level(share_in_group(i), usage_[i], groups_[g].usage);
        }
        std::vector<std::size_t> order(count);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return above[a] != above[b] ? above[a] > above[b] : own[a] > own[b];
        });
        std::vector<double> factors(count);
        for (std::size_t k = 0, first = 0; k < count; ++k) {
            const bool tied = k > 0 && above[order[k]] == above[order[k - 1]] && own[order[k]] == own[order[k - 1]];
            if (!tied) first = k;
            factors[order[k]] = static_cast<double>(count - first) / static_cast<double>(count);
        }
        return factors;
    }

private:
    static double level(double share, double usage, double all) {
        const double used = usage == 0.0 ? 0.0 : usage / all;
        return used == 0.0 ? std::numeric_limits<double>::infinity() : share / used;
    }
    std::size_t group_of(std::size_t i) const { return as_index(shares_.association_group[i]); }
    double share_in_group(std::size_t i) const { return shares_.association_share[i] / groups_[group_of(i)].share; }
    double share_of_group(std::size_t g) const { return shares_.group_share[g] / total_.share; }

    const Multifactor& shares_;
    std::span<const double> usage_;
    std::vector<Account> groups_;  // with the sum of their associations' shares
    Account total_;
};

}  // namespace

std::vector<double> fair_factors(const Multifactor& shares, std::span<const double> usage) {
    const Tree tree(shares, usage);
    return shares.shares == FairShare::classic ? tree.classic() : tree.ranked();
}

void AssociationUsage::open(std::size_t associations) {
    usage_.assign(associations, DecayedUsage(0.0, -kLatest));  // clocks may begin below 0
    changes_.clear();
}

void AssociationUsage::count(Time as_of_us, double half_life_s) {
    auto change = changes_.begin();
    for (; change != changes_.end() && change->time_us <= as_of_us; ++change)
        usage_[as_index(change->association)].change(change->time_us, half_life_s, change->milli_gpus);
    changes_.erase(changes_.begin(), change);
}

std::vector<double> AssociationUsage::factors(Time as_of_us, const Settings& settings) {
    count(as_of_us, settings.usage_half_life_s);
    std::vector<double> usage;
    for (const DecayedUsage& one : usage_) usage.push_back(one.at(as_of_us, settings.usage_half_life_s));
    return fair_factors(settings.multifactor, usage);
}

}  // namespace gpuyard
