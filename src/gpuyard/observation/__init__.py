"""What a policy sees and may do, and its episodes. No gymnasium here: live schedulers use it too."""
